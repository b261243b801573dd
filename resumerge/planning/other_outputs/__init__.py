"""Plans of outputs that are not a merged model.

`adapters` plans an adapter that is extracted, or combined of others, and `mixtures` a mixture of
experts that is made of dense models.
"""
