//! `long double` and `long double complex` against the C compiler's own arithmetic, bit by bit.
#![cfg(target_arch = "x86_64")]

use std::io::Write;
use std::process::{Command, Stdio};

use unipgas_base::atomic::{AtomicForm, AtomicOp, AtomicType, apply, supported};

/// Prints a line for each operation and each choice of target `t`, operand `b` and comparand `c`: the operation's number,
/// whether it is complex, the three, and the target after it, all in hexadecimal.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <float.h>
typedef struct { long double re, im; } z;
static void hex(long double x) {
    unsigned char b[16] = {0};
    memcpy(b, &x, 10);
    for (int i = 0; i < 16; i++) printf("%02x", b[i]);
    putchar(' ');
}
static int tr(z a) { return a.re != 0 || a.im != 0; }
static int eq(z a, z b) { return a.re == b.re && a.im == b.im; }
int main(void) {
    volatile long double one = 1, three = 3;
    const long double v[] = { 0.0L, -0.0L, 1.0L, -1.0L, 1.5L, one / three, 1.0L + LDBL_EPSILON, LDBL_MAX, -LDBL_MAX,
        LDBL_MIN, LDBL_MIN / 8, INFINITY, -INFINITY, NAN };
    const int n = sizeof v / sizeof *v;
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) for (int k = 0; k < n; k++) {
        volatile long double t = v[i], b = v[j], c = v[k], r;
        for (int op = 0; op < 19; op++) {
            switch (op) {
            case 0: r = b < t ? b : t; break;
            case 1: r = b > t ? b : t; break;
            case 2: r = t + b; break;
            case 3: r = t * b; break;
            case 4: r = t || b; break;
            case 5: r = t && b; break;
            case 8: r = (t && !b) || (!t && b); break;
            case 10: r = t; break;
            case 11: r = b; break;
            case 12: r = c == t ? b : t; break;
            case 13: r = c != t ? b : t; break;
            case 14: r = c <= t ? b : t; break;
            case 15: r = c < t ? b : t; break;
            case 16: r = c >= t ? b : t; break;
            case 17: r = c > t ? b : t; break;
            default: continue;
            }
            if (op < 12 && k) continue;
            printf("%d 0 ", op); hex(t); hex(b); hex(c); hex(r); putchar('\n');
        }
        z zt = { v[i], v[k] }, zb = { v[j], v[i] }, zc = { v[i], v[j] };
        for (int op = 2; op < 14; op++) {
            z zr = zt;
            switch (op) {
            case 2: zr.re = zt.re + zb.re; zr.im = zt.im + zb.im; break;
            case 3: {
                volatile long double ac = zt.re * zb.re, bd = zt.im * zb.im, ad = zt.re * zb.im, bc = zt.im * zb.re;
                zr.re = ac - bd; zr.im = ad + bc; break;
            }
            case 4: zr.re = tr(zt) || tr(zb); zr.im = 0; break;
            case 5: zr.re = tr(zt) && tr(zb); zr.im = 0; break;
            case 8: zr.re = tr(zt) != tr(zb); zr.im = 0; break;
            case 10: break;
            case 11: zr = zb; break;
            case 12: if (eq(zc, zt)) zr = zb; break;
            case 13: if (!eq(zc, zt)) zr = zb; break;
            default: continue;
            }
            printf("%d 1 ", op); hex(zt.re); hex(zt.im); hex(zb.re); hex(zb.im); hex(zc.re); hex(zc.im); hex(zr.re); hex(zr.im);
            putchar('\n');
        }
    }
}
"#;

fn output_of_c() -> Option<String> {
    let program = std::env::temp_dir().join(format!("unipgas-long-double-{}", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-O0", "-", "-o"])
        .arg(&program)
        .arg("-lm")
        .stdin(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = compiler.stdin.take().expect("piped");
    input.write_all(PROGRAM.as_bytes()).unwrap();
    drop(input);
    let compiled = compiler.wait().unwrap().success();
    assert!(compiled, "the C program does not compile");
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

fn bytes(hex: &str) -> [u8; 16] {
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

fn is_nan(value: &[u8]) -> bool {
    let value = u128::from_le_bytes(value.try_into().unwrap());
    (value >> 64) & 0x7fff == 0x7fff && value as u64 != 1 << 63
}

#[repr(align(16))]
struct Target([u8; 32]);

#[test]
fn arithmetic_is_the_compiler_s() {
    let Some(lines) = output_of_c() else {
        eprintln!("skipped: no C compiler");
        return;
    };
    let mut seen = std::collections::BTreeSet::new();
    for line in lines.lines() {
        let mut words = line.split_ascii_whitespace();
        let op = AtomicOp::ALL[words.next().unwrap().parse::<usize>().unwrap()];
        let complex = words.next() == Some("1");
        let ty = [AtomicType::LongDouble, AtomicType::ComplexLongDouble][usize::from(complex)];
        let parts: Vec<u8> = words.flat_map(bytes).collect();
        let [t, b, c, expected] =
            std::array::from_fn(|nth| &parts[nth * ty.size()..(nth + 1) * ty.size()]);
        assert!(supported(op, ty));
        let mut target = Target([0; 32]);
        target.0[..t.len()].copy_from_slice(t);
        let mut fetched = [0xa5u8; 32];
        let (at, result) = (target.0.as_mut_ptr(), fetched.as_mut_ptr());
        // SAFETY:
        // - all have the length of an element, and the target has its alignment.
        unsafe { apply(op, ty, at, b.as_ptr(), c.as_ptr(), result) }.unwrap();
        assert_eq!(&fetched[..t.len()], t, "{line}");
        for (found, expected) in target.0.chunks(16).zip(expected.chunks(16)) {
            let same = found == expected || is_nan(found) && is_nan(expected);
            assert!(
                same,
                "{op:?} {ty:?}: {found:02x?} instead of {expected:02x?}\n{line}"
            );
        }
        seen.insert((op as u8, complex));
    }
    let count = |is: &dyn Fn(AtomicOp) -> bool| AtomicOp::ALL.iter().filter(|op| is(**op)).count();
    let defined = |ty| count(&|op| supported(op, ty));
    assert_eq!(
        seen.len(),
        defined(AtomicType::LongDouble) + defined(AtomicType::ComplexLongDouble)
    );
    assert_eq!(count(&|op| op.form() == AtomicForm::Compare), 7);
}

#[test]
fn threads_lose_nothing() {
    const TURNS: usize = 2000;
    let one = (0x3fffu128 << 64) | (1 << 63);
    for (ty, shift) in [
        (AtomicType::LongDouble, 0),
        (AtomicType::ComplexLongDouble, 0),
        (AtomicType::ComplexF64, 8),
        (AtomicType::ComplexF32, 4),
    ] {
        let mut operand = [0u8; 32];
        match ty {
            AtomicType::ComplexF64 => operand[..8].copy_from_slice(&1f64.to_ne_bytes()),
            AtomicType::ComplexF32 => operand[..4].copy_from_slice(&1f32.to_ne_bytes()),
            _ => operand[..16].copy_from_slice(&one.to_ne_bytes()),
        }
        let add = |memory: usize, turns| {
            let (target, null) = ((memory + shift) as *mut u8, std::ptr::null_mut());
            for _ in 0..turns {
                // SAFETY:
                // - an element inside of the memory, aligned as in C, and an operand of its size.
                let added =
                    unsafe { apply(AtomicOp::Sum, ty, target, operand.as_ptr(), null, null) };
                added.unwrap();
            }
        };
        let (mut by_one, mut by_four) = (Box::new([0u128; 4]), Box::new([0u128; 4]));
        add(by_one.as_mut_ptr() as usize, 4 * TURNS);
        let shared = by_four.as_mut_ptr() as usize;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| add(shared, TURNS));
            }
        });
        assert_ne!(by_one[..], [0; 4]);
        assert_eq!(by_one, by_four, "{ty:?}");
    }
}
