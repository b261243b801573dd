"""Plans of outputs that are not a merged model.

`adapters` plans an adapter that is extracted from a model or combined from other adapters.
`mixtures` plans a mixture of experts that is made from dense models.
"""
