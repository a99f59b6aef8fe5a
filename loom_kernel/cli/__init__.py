"""The command line: thin verbs over the runtime. Errors go to stderr with a non-zero status."""
