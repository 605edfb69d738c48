//! What EDATA says: what the peer is told, and for which target of this process a descriptor is. Notices name a VCQ, which another process may have by then; that is another
//! target, and what comes late is told apart by this.

use unipgas_utofu_sys::utofu_mrq_notice;

/// What a peer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Somebody begins a stream.
    Greeting,
    /// What a card says has been answered.
    Answer,
    /// A message has come.
    Mail,
}

/// Of greetings and answers, by turns: so many values each.
const GREETED: u8 = 3;
const GREETING: u8 = 1;
const ANSWER: u8 = GREETING + GREETED;
const BEYOND: u8 = ANSWER + GREETED;
/// Of what a local notice tells the end, and of the rest, which messages belong to: so many values each.
const TARGETS: u8 = 124;
const TOLD: u8 = 8;
const UNTOLD: u8 = TOLD + TARGETS;

fn nth(first: u8, count: u8, target: u32) -> u64 {
    u64::from(first) + u64::from(target % u32::from(count))
}

/// Of a descriptor for this target of whose end a local notice tells.
pub fn told(target: u32) -> u64 {
    nth(TOLD, TARGETS, target)
}

/// Of another one for this target.
pub fn untold(target: u32) -> u64 {
    nth(UNTOLD, TARGETS, target)
}

impl About {
    /// Of a descriptor that tells this target so.
    pub fn to(self, target: u32) -> u64 {
        match self {
            About::Greeting => nth(GREETING, GREETED, target),
            About::Answer => nth(ANSWER, GREETED, target),
            About::Mail => untold(target),
        }
    }

    /// `None`: no peer says that.
    pub fn of(edata: u64) -> Option<Self> {
        match u8::try_from(edata).ok()? {
            GREETING..ANSWER => Some(About::Greeting),
            ANSWER..BEYOND => Some(About::Answer),
            UNTOLD.. => Some(About::Mail),
            _ => None,
        }
    }
}

/// What a notice of this process's own descriptors is of.
pub trait Whose {
    /// The end, or the failure, of something for this target of whose end a local notice tells; no greeting, and no answer.
    fn is_told(&self, target: u32) -> bool;
    /// That of a greeting, or of an answer to one.
    fn is_of_greeting(&self, target: u32) -> bool;
    /// One of these.
    fn is_awaited(&self, target: u32) -> bool {
        self.is_told(target) || self.is_of_greeting(target)
    }
    /// Something for another target, which had the same VCQ.
    fn is_of_another(&self, target: u32) -> bool;
}

impl Whose for utofu_mrq_notice {
    fn is_told(&self, target: u32) -> bool {
        self.edata == told(target)
    }

    fn is_of_greeting(&self, target: u32) -> bool {
        let mut both = [About::Greeting, About::Answer].into_iter();
        both.any(|about| self.edata == about.to(target))
    }

    fn is_of_another(&self, target: u32) -> bool {
        // The specification does not say that errors have it.
        let says_which = About::of(self.edata).is_some() || self.edata >= u64::from(TOLD);
        says_which && !self.is_awaited(target) && self.edata != untold(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [About; 3] = [About::Greeting, About::Answer, About::Mail];

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
                assert_eq!(About::of(about.to(target)), Some(about), "{target}");
            }
            assert_eq!(About::of(told(target)), None);
        }
        for nothing in [0, 7, 256, 257, u64::MAX] {
            assert_eq!(About::of(nothing), None);
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
            assert!(notice(About::Answer.to(target)).is_awaited(target));
            assert!(!notice(About::Mail.to(target)).is_awaited(target));
        }
    }
}
