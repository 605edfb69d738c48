//! The state of a job on several hosts: its running ranks, the reaction to an ended process or a lost host, and its end.

use super::frames::End;

/// Rules for a failed process or a lost host.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Number of the host, from 0, that starts each rank.
    pub homes: Vec<usize>,
    /// Whether the other ranks go on after a failure.
    pub keep_going: bool,
    /// Number of replacement processes.
    pub spares: u32,
}

/// An order to the launchers of the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// To this host: start a replacement process for this rank.
    Start { host: usize, rank: u32 },
    /// To this host: this rank gets no replacement.
    GiveUp { host: usize, rank: u32 },
    /// To all: the process of this rank was on a lost host.
    Lost { rank: u32 },
    /// To all: end the ranks.
    EndAll,
    /// To all: no process of the job runs.
    Over,
}

/// Reaction to the end of a process, or the loss of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAction {
    /// Nothing. The end was expected.
    Nothing,
    /// Replacement processes start.
    Replaced {
        /// Number of spares left.
        left: u32,
    },
    /// A failure.
    Failed(FailureEffect),
}

/// Effect of a failure on the other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureEffect {
    /// No other rank runs.
    None,
    /// They continue.
    GoOn,
    /// The launchers end them.
    End,
}

/// Hosts and state of the processes of a job.
#[derive(Debug)]
pub(super) struct FailurePolicy {
    rules: Rules,
    lost: Vec<bool>,
    runs: Vec<bool>,
    running: usize,
    ending: bool,
    pub first_failure: Option<u32>,
    pub orders: Vec<Order>,
}

impl FailurePolicy {
    pub(crate) fn new(rules: Rules, hosts: usize) -> Self {
        let size = rules.homes.len();
        FailurePolicy {
            rules,
            lost: vec![false; hosts],
            runs: vec![true; size],
            running: size,
            ending: false,
            first_failure: None,
            orders: Vec::new(),
        }
    }

    /// The host of a rank. `None`: no such rank.
    pub(crate) fn home(&self, rank: u32) -> Option<usize> {
        self.rules.homes.get(rank as usize).copied()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.running == 0
    }

    pub(crate) fn running_at(&self, host: usize) -> Vec<u32> {
        let homes = (0u32..).zip(&self.rules.homes);
        let here = homes.filter(|(rank, home)| **home == host && self.runs[*rank as usize]);
        here.map(|(rank, _)| rank).collect()
    }

    /// Ends the job. No later end is a failure, and no rank gets a replacement.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            self.orders.push(Order::EndAll);
        }
    }

    /// Records that a process has ended on `host`. `None`: the rank did not run there.
    pub fn ended(&mut self, host: usize, end: &End) -> Option<FailureAction> {
        if self.home(end.rank) != Some(host) || !self.stop(end.rank) {
            return None;
        }
        let then = if end.exit.success() || self.ending {
            FailureAction::Nothing
        } else if !end.left && self.rules.spares > 0 {
            self.start(host, end.rank);
            FailureAction::Replaced {
                left: self.rules.spares,
            }
        } else if end.wanted {
            FailureAction::Nothing
        } else {
            self.fail(end.rank)
        };
        self.look();
        Some(then)
    }

    /// Records that a host could not start a process. `None`: no start was in progress there.
    pub(crate) fn cannot(&mut self, host: usize, rank: u32) -> Option<FailureAction> {
        if self.home(rank) != Some(host) || !self.stop(rank) {
            return None;
        }
        self.rules.spares += 1;
        let then = match self.ending {
            true => FailureAction::Nothing,
            false => self.fail(rank),
        };
        self.look();
        Some(then)
    }

    /// Records the loss of a host and its ranks. Without `keep_going`, the ranks get spares only if the spares suffice for all of them.
    pub(crate) fn lose(&mut self, host: usize) -> FailureAction {
        self.lost[host] = true;
        let ranks = self.running_at(host);
        for rank in &ranks {
            self.stop(*rank);
            self.orders.push(Order::Lost { rank: *rank });
        }
        let mut then = FailureAction::Nothing;
        if !self.ending {
            let enough = self.rules.spares as usize >= ranks.len();
            for rank in ranks {
                let other = self
                    .least_busy()
                    .filter(|_| self.rules.spares > 0 && (enough || self.rules.keep_going));
                then = match (other, then) {
                    (Some(other), FailureAction::Nothing | FailureAction::Replaced { .. }) => {
                        self.start(other, rank);
                        FailureAction::Replaced {
                            left: self.rules.spares,
                        }
                    }
                    _ => self.fail(rank),
                };
            }
        }
        self.look();
        then
    }

    /// The remaining host with the fewest processes.
    fn least_busy(&self) -> Option<usize> {
        let left = (0..self.lost.len()).filter(|host| !self.lost[*host]);
        left.min_by_key(|host| self.running_at(*host).len())
    }

    fn start(&mut self, host: usize, rank: u32) {
        self.rules.spares -= 1;
        self.rules.homes[rank as usize] = host;
        self.runs[rank as usize] = true;
        self.running += 1;
        self.orders.push(Order::Start { host, rank });
    }

    fn fail(&mut self, rank: u32) -> FailureAction {
        self.first_failure.get_or_insert(rank);
        let host = self.rules.homes[rank as usize];
        if !self.lost[host] {
            self.orders.push(Order::GiveUp { host, rank });
        }
        FailureAction::Failed(match (self.running, self.rules.keep_going) {
            (0, _) => FailureEffect::None,
            (_, true) => FailureEffect::GoOn,
            (_, false) => {
                self.end();
                FailureEffect::End
            }
        })
    }

    /// Marks a rank as stopped. Returns whether it ran.
    fn stop(&mut self, rank: u32) -> bool {
        let ran = std::mem::replace(&mut self.runs[rank as usize], false);
        self.running -= usize::from(ran);
        ran
    }

    fn look(&mut self) {
        if self.running == 0 {
            self.orders.push(Order::Over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Exit;
    use super::*;

    fn course(keep_going: bool, spares: u32) -> FailurePolicy {
        course_on(2, keep_going, spares)
    }

    fn course_on(hosts: usize, keep_going: bool, spares: u32) -> FailurePolicy {
        let rules = Rules {
            homes: vec![0, 1, 0, 1],
            keep_going,
            spares,
        };
        FailurePolicy::new(rules, hosts)
    }

    fn end(rank: u32, exit: Exit) -> End {
        End {
            rank,
            pid: 7,
            exit,
            left: exit == Exit::Code(0),
            wanted: false,
        }
    }

    fn orders(course: &mut FailurePolicy) -> Vec<Order> {
        std::mem::take(&mut course.orders)
    }

    fn failed(effect: FailureEffect) -> FailureAction {
        FailureAction::Failed(effect)
    }

    const KILLED: Exit = Exit::Signal(9);

    #[test]
    fn a_failure_ends_the_others() {
        let mut course = course(false, 0);
        assert_eq!(
            course.ended(1, &end(1, KILLED)),
            Some(failed(FailureEffect::End))
        );
        assert_eq!(course.ended(1, &end(1, KILLED)), None, "once");
        assert_eq!(course.ended(0, &end(3, KILLED)), None, "it is elsewhere");
        assert_eq!(course.ended(0, &end(9, KILLED)), None, "no rank");
        let given_up = Order::GiveUp { host: 1, rank: 1 };
        assert_eq!(orders(&mut course), [given_up, Order::EndAll]);
        for rank in [0, 2, 3] {
            let host = rank as usize % 2;
            assert_eq!(
                course.ended(host, &end(rank, KILLED)),
                Some(FailureAction::Nothing)
            );
        }
        assert_eq!(orders(&mut course), [Order::Over]);
        assert_eq!(course.first_failure, Some(1));
    }

    #[test]
    fn a_spare_begins_where_the_dead_one_was() {
        let mut course = course(false, 1);
        let replaced = FailureAction::Replaced { left: 0 };
        assert_eq!(course.ended(1, &end(3, KILLED)), Some(replaced));
        assert_eq!(orders(&mut course), [Order::Start { host: 1, rank: 3 }]);
        assert_eq!(
            course.ended(1, &end(3, KILLED)),
            Some(failed(FailureEffect::End))
        );
        assert_eq!(course.first_failure, Some(3));
    }

    #[test]
    fn who_has_left_or_is_not_wanted_any_more_is_no_failure() {
        let mut course = course(false, 0);
        let wanted = End {
            wanted: true,
            ..end(0, Exit::Signal(2))
        };
        assert_eq!(course.ended(0, &wanted), Some(FailureAction::Nothing));
        for rank in [1, 2, 3] {
            let ended = course.ended(rank as usize % 2, &end(rank, Exit::Code(0)));
            assert_eq!(ended, Some(FailureAction::Nothing));
        }
        assert_eq!(orders(&mut course), [Order::Over]);
        assert_eq!(course.first_failure, None);
    }

    #[test]
    fn the_ranks_of_a_lost_host_go_on_elsewhere() {
        let mut course = course(false, 3);
        assert_eq!(course.lose(1), FailureAction::Replaced { left: 1 });
        assert_eq!(
            orders(&mut course),
            [
                Order::Lost { rank: 1 },
                Order::Lost { rank: 3 },
                Order::Start { host: 0, rank: 1 },
                Order::Start { host: 0, rank: 3 },
            ]
        );
        assert_eq!(course.running_at(0), [0, 1, 2, 3]);
        assert_eq!(
            course.lose(0),
            failed(FailureEffect::None),
            "no host is left"
        );
        assert_eq!(course.first_failure, Some(0));
        assert!(course.is_over());
    }

    #[test]
    fn with_too_few_spares_a_lost_host_is_a_failure() {
        let mut course = course(false, 1);
        assert_eq!(course.lose(1), failed(FailureEffect::End));
        let mut going_on = course_on(3, true, 1);
        assert_eq!(going_on.lose(1), failed(FailureEffect::GoOn));
        assert_eq!(going_on.first_failure, Some(3));
        assert_eq!(
            orders(&mut going_on)[2..],
            [Order::Start { host: 2, rank: 1 }]
        );
    }

    #[test]
    fn what_cannot_be_started_is_a_failure() {
        let mut course = course(true, 1);
        course.ended(1, &end(3, KILLED));
        assert_eq!(course.cannot(1, 3), Some(failed(FailureEffect::GoOn)));
        assert_eq!(course.cannot(1, 3), None);
        let replaced = Some(FailureAction::Replaced { left: 0 });
        assert_eq!(course.ended(0, &end(2, KILLED)), replaced, "it is left");
    }
}
