//! Reductions: elements of one type combined one by one.

/// The operation on two elements. Integers wrap. In `Min` and `Max` of a NaN and a number, the number wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Combination {
    Min,
    Max,
    Sum,
    Product,
}

/// The type of an element, in the machine's own byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ElementType {
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl ElementType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            ElementType::I32 | ElementType::U32 | ElementType::F32 => 4,
            ElementType::I64 | ElementType::U64 | ElementType::F64 => 8,
        }
    }
}

/// Combines `held` and `other`, in this order, element by element into `held`. The shorter slice sets the number of elements.
pub fn combine(how: Combination, element: ElementType, held: &mut [u8], other: &[u8]) {
    macro_rules! run {
        ($ty:ty, $sum:expr, $product:expr) => {{
            const N: usize = size_of::<$ty>();
            let (sum, product): (fn($ty, $ty) -> $ty, fn($ty, $ty) -> $ty) = ($sum, $product);
            for (a, b) in held.chunks_exact_mut(N).zip(other.chunks_exact(N)) {
                let x = <$ty>::from_ne_bytes((&*a).try_into().expect("a chunk"));
                let y = <$ty>::from_ne_bytes(b.try_into().expect("a chunk"));
                let z = match how {
                    Combination::Min => x.min(y),
                    Combination::Max => x.max(y),
                    Combination::Sum => sum(x, y),
                    Combination::Product => product(x, y),
                };
                a.copy_from_slice(&z.to_ne_bytes());
            }
        }};
    }
    macro_rules! integer {
        ($ty:ty) => {
            run!($ty, <$ty>::wrapping_add, <$ty>::wrapping_mul)
        };
    }
    match element {
        ElementType::I32 => integer!(i32),
        ElementType::U32 => integer!(u32),
        ElementType::I64 => integer!(i64),
        ElementType::U64 => integer!(u64),
        ElementType::F32 => run!(f32, |x, y| x + y, |x, y| x * y),
        ElementType::F64 => run!(f64, |x, y| x + y, |x, y| x * y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(values: [i32; N]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect()
    }

    #[test]
    fn elements_combine_by_their_type() {
        let other = of([-7, 4, 1]);
        let combined = |how, element| {
            let mut held = of([5, -3, i32::MAX]);
            combine(how, element, &mut held, &other);
            held
        };
        assert_eq!(
            combined(Combination::Min, ElementType::I32),
            of([-7, -3, 1])
        );
        assert_eq!(
            combined(Combination::Sum, ElementType::I32),
            of([-2, 1, i32::MIN])
        );
        assert_eq!(
            combined(Combination::Product, ElementType::I32),
            of([-35, -12, i32::MAX])
        );
        // As unsigned, -7 is the larger.
        assert_eq!(
            combined(Combination::Max, ElementType::U32),
            of([-7, -3, i32::MAX])
        );
    }

    #[test]
    fn floating_point_is_combined_in_the_order_given() {
        let mut held = 1e300f64.to_ne_bytes();
        combine(
            Combination::Product,
            ElementType::F64,
            &mut held,
            &1e10f64.to_ne_bytes(),
        );
        assert_eq!(f64::from_ne_bytes(held), f64::INFINITY);
        let mut held = f32::NAN.to_ne_bytes();
        combine(
            Combination::Min,
            ElementType::F32,
            &mut held,
            &2f32.to_ne_bytes(),
        );
        assert_eq!(f32::from_ne_bytes(held), 2.0);
    }
}
