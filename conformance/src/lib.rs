//! The laws of the four specifications, run on every interface and backend.
