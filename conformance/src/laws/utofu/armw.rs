use crate::law::Law;

pub fn laws() -> Vec<&'static Law> {
    Vec::new()
}
