//! What users and batch systems give the command to read: with what nobody means.

use unipgas_fuzz::{Reader, run};
use unipgas_tofud::Shape;

use crate::hosts::list::{from_file, from_list, share};

const READERS: &[Reader] = &[
    ("hostfile", file, files),
    ("hosts", list, lists),
    ("shape", shape, shapes),
];

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(named) = from_file("F", &text) {
        let _ = (share(&named, Some(7)), share(&named, None));
    }
}

fn files() -> Vec<Vec<u8>> {
    texts(&[
        "a\nb:4\n# c\nd slots=3 max_slots=9\n",
        "n[01-12,40]:2\n",
        "a slots=2\nb slots=65536\n",
    ])
}

fn list(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(named) = from_list(&text) {
        let _ = (share(&named, Some(7)), share(&named, None));
    }
}

fn lists() -> Vec<Vec<u8>> {
    texts(&["a,b:4", "n[01-04,7],m[1-2]x[3-4]:2", "n[1-65535]"])
}

fn shape(bytes: &[u8]) {
    if let Ok(shape) = String::from_utf8_lossy(bytes).parse::<Shape>() {
        assert_eq!(shape.to_string().parse(), Ok(shape));
    }
}

fn shapes() -> Vec<Vec<u8>> {
    texts(&["24x23x24x2x3x2", "4x2x3", "1x1x1x2x1x1"])
}

#[test]
fn what_nobody_means_is_read() {
    run(READERS);
}
