"""The opening of a recipe's sources, and the planning of its documents.

A recipe is one merge, or stages and a final merge of their results. `pinned_plan` opens the sources
and plans every document; read it first. `open_sources` opens the models, and `streamed_sources`
checks those that ``--stream`` reads by ranges. `pins` reads from a ledger the versions with which a
run is planned again, and `planning_options` has the options that the plan depends on.
`stage_models` plans a document with the results of the stages before it. `plan_notes` has the notes
for the user, and `plan_rows` the rows that store a plan in the ledger. `opened_stages` opens stages
as models to read, without a run.
"""
