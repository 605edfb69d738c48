//! Predictions of a model of another network, shown next to measured figures.

use unipgas_tofud::collectives::{self, CollectiveAlgorithm, CollectiveOperation};
use unipgas_tofud::{Figures, JobLayout};

use crate::case::{Case, Metric};

/// A model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Model {
    /// The Tofu interconnect D, with a process on each node.
    Tofud,
}

impl Model {
    /// The name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Model::Tofud => "tofud",
        }
    }

    /// An explanation of the column for people.
    pub fn about(self) -> &'static str {
        match self {
            Model::Tofud => {
                "The column tofud is no measurement: it is what a model of TofuD predicts for processes on neighbouring nodes, in part from assumed figures\n\
                 (`unipgas topo --help`). All other columns are measured on this machine."
            }
        }
    }

    /// A prediction in the unit of the metric; `None` if the model has none.
    pub fn predict(self, case: Case) -> Option<f64> {
        let Model::Tofud = self;
        let figures = Figures::default();
        let collective = |operation| {
            let job = JobLayout::of(case.processes, 1).ok()?;
            let best = collectives::best_of(
                operation,
                &job,
                &figures,
                case.bytes,
                CollectiveAlgorithm::is_of_groups,
            );
            best.ok().map(|(_, ns)| ns / 1e3)
        };
        match case.metric {
            Metric::PutNotice | Metric::OneLine => Some(figures.put(case.bytes, 1)),
            Metric::Bandwidth => Some(figures.stream(case.bytes, 1)),
            Metric::Barrier => collective(CollectiveOperation::Barrier),
            Metric::Allreduce => collective(CollectiveOperation::AllReduce),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(metric: Metric, processes: u32, bytes: u64) -> Option<f64> {
        let case = Case::new(metric, processes, bytes);
        Model::Tofud.predict(case)
    }

    #[test]
    fn what_is_measured_and_in_the_model_is_predicted_in_the_metrics_unit() {
        assert_eq!(predicted(Metric::PutNotice, 2, 8), Some(490.0));
        // The model returns ns; the metric is in us.
        assert_eq!(predicted(Metric::Barrier, 2, 0), Some(0.49));
        let gbs = predicted(Metric::Bandwidth, 2, 64 << 20).unwrap();
        assert!((6.3..6.4).contains(&gbs), "{gbs}");
        assert!(predicted(Metric::Allreduce, 8, 8) > predicted(Metric::Barrier, 8, 0));
        assert_eq!(predicted(Metric::Wake, 2, 0), None);
    }
}
