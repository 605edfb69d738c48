//! EDATA of descriptors: the message type for the peer, and the target of a descriptor. A notice names only a VCQ, and another process may have that
//! VCQ when the notice arrives. That process is another target, so EDATA identifies late notices.

use unipgas_utofu_sys::utofu_mrq_notice;

/// Type of a notice at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoticeType {
    /// A peer begins a stream.
    Greeting,
    /// A peer has answered a greeting.
    Answer,
    /// A message has arrived.
    Mail,
}

/// Number of EDATA values for greetings, and for answers. A target's number modulo this selects the value.
const GREETED: u8 = 3;
const GREETING: u8 = 1;
const ANSWER: u8 = GREETING + GREETED;
const BEYOND: u8 = ANSWER + GREETED;
/// Number of EDATA values for descriptors with a local notice, and for all others, including messages.
const TARGETS: u8 = 124;
const TOLD: u8 = 8;
const UNTOLD: u8 = TOLD + TARGETS;

fn nth(first: u8, count: u8, target: u32) -> u64 {
    u64::from(first) + u64::from(target % u32::from(count))
}

/// EDATA of a descriptor for `target` with a local notice.
pub fn told(target: u32) -> u64 {
    nth(TOLD, TARGETS, target)
}

/// EDATA of a descriptor for `target` without a local notice.
pub fn untold(target: u32) -> u64 {
    nth(UNTOLD, TARGETS, target)
}

impl NoticeType {
    /// EDATA of a descriptor that sends this notice to `target`.
    pub fn to(self, target: u32) -> u64 {
        match self {
            NoticeType::Greeting => nth(GREETING, GREETED, target),
            NoticeType::Answer => nth(ANSWER, GREETED, target),
            NoticeType::Mail => untold(target),
        }
    }

    /// Type of a received notice. `None`: no peer sends this value.
    pub fn of(edata: u64) -> Option<Self> {
        match u8::try_from(edata).ok()? {
            GREETING..ANSWER => Some(NoticeType::Greeting),
            ANSWER..BEYOND => Some(NoticeType::Answer),
            UNTOLD.. => Some(NoticeType::Mail),
            _ => None,
        }
    }
}

/// Origin of a local notice.
pub(crate) trait NoticeOwner {
    /// Whether it completes, or fails, a descriptor for `target` with a local notice. Greetings and answers are excluded.
    fn is_told(&self, target: u32) -> bool;
    /// Whether it belongs to a greeting of `target`, or to an answer.
    fn is_of_greeting(&self, target: u32) -> bool;
    /// Whether it belongs to either of them.
    fn is_awaited(&self, target: u32) -> bool {
        self.is_told(target) || self.is_of_greeting(target)
    }
    /// Whether it belongs to another target with the same VCQ.
    fn is_of_another(&self, target: u32) -> bool;
}

impl NoticeOwner for utofu_mrq_notice {
    fn is_told(&self, target: u32) -> bool {
        self.edata == told(target)
    }

    fn is_of_greeting(&self, target: u32) -> bool {
        let mut both = [NoticeType::Greeting, NoticeType::Answer].into_iter();
        both.any(|about| self.edata == about.to(target))
    }

    fn is_of_another(&self, target: u32) -> bool {
        // The specification does not guarantee EDATA for errors.
        let says_which = NoticeType::of(self.edata).is_some() || self.edata >= u64::from(TOLD);
        says_which && !self.is_awaited(target) && self.edata != untold(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [NoticeType; 3] = [NoticeType::Greeting, NoticeType::Answer, NoticeType::Mail];

    fn notice(edata: u64) -> utofu_mrq_notice {
        utofu_mrq_notice {
            edata,
            ..Default::default()
        }
    }

    #[test]
    fn what_peers_are_told_comes_back() {
        for target in 0..1000 {
            for about in ALL {
                assert_eq!(NoticeType::of(about.to(target)), Some(about), "{target}");
            }
            assert_eq!(NoticeType::of(told(target)), None);
        }
        for nothing in [0, 7, 256, 257, u64::MAX] {
            assert_eq!(NoticeType::of(nothing), None);
        }
    }

    #[test]
    fn who_has_a_vcq_next_is_told_apart() {
        for target in 0..1000 {
            let of_it = [told(target), untold(target)].into_iter();
            let of_it = of_it.chain(ALL.map(|about| about.to(target)));
            for edata in of_it {
                assert!(!notice(edata).is_of_another(target));
                assert!(notice(edata).is_of_another(target + 1));
                assert!(!notice(edata).is_awaited(target + 1));
            }
            assert!(!notice(0).is_of_another(target) && !notice(0).is_awaited(target));
            assert!(notice(NoticeType::Answer.to(target)).is_awaited(target));
            assert!(!notice(NoticeType::Mail.to(target)).is_awaited(target));
        }
    }
}
