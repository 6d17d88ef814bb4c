"""Tables, figures and pages for any sweep; what is the paper's own is passed in by `firma.paper` and `firma.cli`."""
