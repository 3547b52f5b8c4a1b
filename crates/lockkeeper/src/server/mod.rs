//! The HTTP API and the page, over the same engine as the command line.
