"""The custom resources as pydantic models. Nothing here measures, decides or talks to a cluster."""
