//! A backend that wraps another one and delays, reorders, splits and kills, from a seed.
