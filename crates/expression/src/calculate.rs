//! Arithmetic, as govaluate has it: on 64-bit floats, on their whole parts for bits. Where govaluate goes
//! on with an infinity or with what is no number, this says so.

use crate::tree::Calculation;

pub(crate) fn calculate(calculation: Calculation, a: f64, b: f64) -> Result<f64, String> {
    // As bits: what is beyond 64 of them stays at their end.
    let (x, y) = (a as i64, b as i64);
    let shift = || u32::try_from(y).map_err(|_| format!("`{b}` is no number of bits to shift by"));
    let result = match calculation {
        Calculation::Minus => a - b,
        Calculation::Times => a * b,
        Calculation::Divide | Calculation::Modulo if b == 0.0 => return Err("it divides by zero".to_owned()),
        Calculation::Divide => a / b,
        Calculation::Modulo => a % b,
        Calculation::Power => a.powf(b),
        Calculation::BitAnd => (x & y) as f64,
        Calculation::BitOr => (x | y) as f64,
        Calculation::BitXor => (x ^ y) as f64,
        Calculation::ShiftLeft => (x as u64).checked_shl(shift()?).unwrap_or(0) as f64,
        Calculation::ShiftRight => (x as u64).checked_shr(shift()?).unwrap_or(0) as f64,
    };
    match result.is_finite() {
        // No zero is negative: it would be written so.
        true => Ok(result + 0.0),
        false if result.is_nan() => Err("the result is no number".to_owned()),
        false => Err("the result is too large".to_owned()),
    }
}
