//! Other libraries, measured in the same run when they are installed.
