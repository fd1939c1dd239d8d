"""A bare Starlette endpoint that streams a model's answer, by different clients."""
