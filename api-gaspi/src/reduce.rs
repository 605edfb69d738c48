//! The predefined reductions (GASPI 17.1 §11.3.2, §11.3.3).

use unipgas_core::combine::{Combination, ElementType};

use crate::status::{Result, Status};

/// `gaspi_operation_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReductionOperation {
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

impl ReductionOperation {
    /// Converts the C value. Errors: [`Status::Error`].
    pub fn from_c(value: u32) -> Result<Self> {
        [
            ReductionOperation::Min,
            ReductionOperation::Max,
            ReductionOperation::Sum,
        ]
        .get(value as usize)
        .copied()
        .ok_or(Status::Error)
    }
}

impl Datatype {
    /// Converts the C value. Errors: [`Status::Error`].
    pub fn from_c(value: u32) -> Result<Self> {
        use Datatype::{Double, Float, Int, Long, Uint, Ulong};
        [Int, Uint, Float, Double, Long, Ulong]
            .get(value as usize)
            .copied()
            .ok_or(Status::Error)
    }

    fn element(self) -> ElementType {
        match self {
            Datatype::Int => ElementType::I32,
            Datatype::Uint => ElementType::U32,
            Datatype::Float => ElementType::F32,
            Datatype::Double => ElementType::F64,
            Datatype::Long => ElementType::I64,
            Datatype::Ulong => ElementType::U64,
        }
    }

    /// Size of an element in bytes.
    pub fn size(self) -> usize {
        self.element().size()
    }
}

/// The engine's operation and element type.
pub(crate) fn combined(op: ReductionOperation, ty: Datatype) -> (Combination, ElementType) {
    let how = match op {
        ReductionOperation::Min => Combination::Min,
        ReductionOperation::Max => Combination::Max,
        ReductionOperation::Sum => Combination::Sum,
    };
    (how, ty.element())
}
