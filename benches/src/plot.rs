//! Latency and bandwidth over size as SVG.
