from ottla.wire.produce_lead import Lead

class Requests:
    def __init__(
        self, lead: Lead, head: bytes, common: bytes, answer_begin: bytes, answer_end: bytes, is_flexible: bool
    ) -> None: ...
    def found(self, frame: memoryview) -> tuple[int, list[tuple[int, bytes]]] | None: ...
