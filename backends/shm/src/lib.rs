//! The shared-memory backend of unipgas: processes of one node.
