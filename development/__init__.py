"""Tools of a checkout, which are not installed: the development stack (`make up`, `make test`) and the demo."""
