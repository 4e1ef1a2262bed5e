from ottla.api.produce_ahead import ProduceGroup as ProduceGroup

BUILT_FROM: str
