//! The predefined reductions (GASPI 17.1 §11.3.2, §11.3.3).

use crate::status::{Result, Status};

/// `gaspi_operation_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Min,
    Max,
    Sum,
}

/// `gaspi_datatype_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Datatype {
    Int,
    Uint,
    Float,
    Double,
    Long,
    Ulong,
}

impl Operation {
    /// From the C value. Errors: [`Status::Error`].
    pub fn from_c(value: u32) -> Result<Self> {
        [Operation::Min, Operation::Max, Operation::Sum]
            .get(value as usize)
            .copied()
            .ok_or(Status::Error)
    }
}

impl Datatype {
    /// From the C value. Errors: [`Status::Error`].
    pub fn from_c(value: u32) -> Result<Self> {
        use Datatype::{Double, Float, Int, Long, Uint, Ulong};
        [Int, Uint, Float, Double, Long, Ulong]
            .get(value as usize)
            .copied()
            .ok_or(Status::Error)
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Datatype::Int | Datatype::Uint | Datatype::Float => 4,
            Datatype::Double | Datatype::Long | Datatype::Ulong => 8,
        }
    }
}

/// Combines element by element into `held`. Integers wrap; with floating point a NaN loses against a number in MIN and MAX.
pub(crate) fn combine_elements(op: Operation, ty: Datatype, held: &mut [u8], other: &[u8]) {
    macro_rules! run {
        ($ty:ty, $sum:expr) => {{
            const N: usize = size_of::<$ty>();
            let sum: fn($ty, $ty) -> $ty = $sum;
            for (a, b) in held.chunks_exact_mut(N).zip(other.chunks_exact(N)) {
                let x = <$ty>::from_ne_bytes((&*a).try_into().expect("a chunk"));
                let y = <$ty>::from_ne_bytes(b.try_into().expect("a chunk"));
                let z = match op {
                    Operation::Min => x.min(y),
                    Operation::Max => x.max(y),
                    Operation::Sum => sum(x, y),
                };
                a.copy_from_slice(&z.to_ne_bytes());
            }
        }};
    }
    match ty {
        Datatype::Int => run!(i32, |x, y| x.wrapping_add(y)),
        Datatype::Uint => run!(u32, |x, y| x.wrapping_add(y)),
        Datatype::Long => run!(i64, |x, y| x.wrapping_add(y)),
        Datatype::Ulong => run!(u64, |x, y| x.wrapping_add(y)),
        Datatype::Float => run!(f32, |x, y| x + y),
        Datatype::Double => run!(f64, |x, y| x + y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_combine_by_their_type() {
        let mut held: Vec<u8> = [5i32, -3, i32::MAX]
            .iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect();
        let other: Vec<u8> = [-7i32, 4, 1].iter().flat_map(|v| v.to_ne_bytes()).collect();
        combine_elements(Operation::Min, Datatype::Int, &mut held.clone(), &other);
        let mut sum = held.clone();
        combine_elements(Operation::Sum, Datatype::Int, &mut sum, &other);
        assert_eq!(&sum[..4], &(-2i32).to_ne_bytes());
        assert_eq!(&sum[8..], &i32::MIN.to_ne_bytes());
        combine_elements(Operation::Max, Datatype::Uint, &mut held, &other);
        assert_eq!(
            &held[..4],
            &(-7i32).to_ne_bytes(),
            "as unsigned, -7 is the larger"
        );
    }
}
