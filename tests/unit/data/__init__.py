"""Analysis, plots and publishing of exported submissions."""
