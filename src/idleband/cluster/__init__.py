"""Run tasks on the workers of a Dask cluster."""
