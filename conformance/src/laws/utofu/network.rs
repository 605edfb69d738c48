//! The virtual network as its documentation describes it, independent of the library's answers. UNIPGAS_TOFU_SHAPE gives the axes; otherwise it has as many
//! units of 2 x 3 x 2 nodes as the processes need. Each node has UNIPGAS_TOFU_PPN processes.

use unipgas_core::rendezvous::JobName;

/// Size of the network for processes without a launcher, in units.
const BY_HAND: [u32; 3] = [8, 8, 8];
/// The A, B and C axes of a unit.
const UNIT: [u32; 3] = [2, 3, 2];

pub(crate) struct Network {
    lengths: [u32; 6],
    pub(crate) per_node: u32,
}

impl Network {
    /// The network of this process's environment. Errors: a text.
    pub(crate) fn from_env() -> Result<Network, String> {
        let get = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let number = |text: &str| {
            let number = text.parse::<u32>();
            number.map_err(|e| format!("{text} in the environment: {e}"))
        };
        let per_node = get("UNIPGAS_TOFU_PPN").map_or(Ok(1), |text| number(&text))?;
        let lengths = match get("UNIPGAS_TOFU_SHAPE") {
            Some(text) => {
                let lengths: Result<Vec<u32>, String> = text.split('x').map(number).collect();
                let lengths = lengths?.try_into();
                lengths.map_err(|_| format!("{text} in the environment: not six lengths"))?
            }
            None => {
                let job = JobName::from_env().map_err(|e| e.to_string())?;
                let [x, y, z] = job.size().map_or(BY_HAND, |n| units(n.div_ceil(per_node)));
                [x, y, z, UNIT[0], UNIT[1], UNIT[2]]
            }
        };
        Ok(Network { lengths, per_node })
    }

    /// The coordinates of a node: C counts fastest, X slowest.
    pub(crate) fn coords(&self, mut node: u32) -> [u8; 6] {
        let mut coords = [0; 6];
        for (at, length) in coords.iter_mut().zip(self.lengths).rev() {
            *at = (node % length) as u8;
            node /= length;
        }
        coords
    }

    /// The node at these coordinates; `None` outside of the network.
    pub(crate) fn node(&self, coords: &[u8; 6]) -> Option<u32> {
        let mut all = coords.iter().zip(self.lengths);
        all.try_fold(0, |node, (at, length)| {
            let at = u32::from(*at);
            (at < length).then_some(node * length + at)
        })
    }
}

/// X, Y and Z of the units for this number of nodes, as nearly a cube as possible.
fn units(nodes: u32) -> [u32; 3] {
    let units = nodes.max(1).div_ceil(12);
    let x = (1..).find(|x| x * x * x >= units).unwrap_or(1);
    let y = (1..).find(|y| x * y * y >= units).unwrap_or(1);
    [x, y, units.div_ceil(x * y)]
}
