//! Shared helpers of the whole-system tests.
