"""Numbers that no driver tells and no data sheet has: where one way to write a kernel overtakes another.

In: nothing. Out: ``Tuning``, a part of a device's ``Facts``. The defaults were found on an H200 and hold until somebody measures another family: its row in
``cuda/gpus.py`` then has a ``Tuning`` of its own. ``python -m benchmarks.tuning --device cuda`` times programs of each kind with each number at half and at twice its value.
"""

from __future__ import annotations

import math

from attrs import field, frozen


@frozen
class AttentionShape:
    """Rows of a program, places of one step along the other side, warps, and stages of the pipeline."""

    rows: int
    step: int
    num_warps: int
    num_stages: int


_Shapes = tuple[tuple[int, AttentionShape], ...]


@frozen
class AttentionShapes:
    """Shapes of attention's kernels by the larger head width, up to which each goes: of operands of 16 bits by what is computed, and of float32."""

    forward: _Shapes = (
        (64, AttentionShape(64, 64, 4, 3)),
        (128, AttentionShape(128, 64, 8, 3)),
        (256, AttentionShape(64, 32, 4, 3)),
    )
    #: Forward of fewer rows than a product of matrices takes at once.
    decode: _Shapes = (
        (64, AttentionShape(32, 128, 4, 3)),
        (128, AttentionShape(32, 64, 4, 3)),
        (256, AttentionShape(32, 32, 4, 3)),
    )
    query_gradient: _Shapes = (
        (64, AttentionShape(64, 64, 4, 3)),
        (128, AttentionShape(128, 64, 8, 3)),
        (256, AttentionShape(64, 32, 8, 2)),
    )
    key_gradients: _Shapes = (
        (64, AttentionShape(64, 64, 4, 3)),
        (128, AttentionShape(64, 32, 4, 3)),
        (256, AttentionShape(64, 32, 8, 2)),
    )
    single: _Shapes = (
        (64, AttentionShape(64, 32, 4, 2)),
        (128, AttentionShape(64, 32, 8, 2)),
        (256, AttentionShape(32, 16, 8, 2)),
    )

    def shape(self, kind: str, width: int) -> AttentionShape:
        """The shape of a kernel, ``kind`` being the name of a field, for heads of ``width``."""
        shapes: _Shapes = getattr(self, kind)
        return next(shape for most, shape in shapes if width <= most)


@frozen(kw_only=True)
class Tuning:
    """Where a number is compared with elements or bytes, it is the last that is still the smaller case."""

    #: A row of at most this many elements (all rows together) is kept in registers from its first load to its last use: as float32 they fill a quarter of a
    #: multiprocessor's 65,536.
    persistent_elements: int = 16384
    #: A row that is walked once gains nothing from a block beyond this.
    persistent_once_elements: int = 4096
    #: The same as the first for a row that is kept without padding while other programs wait for memory beside it.
    pieces_elements: int = 12288
    #: Elements of a column that one program holds at once at most.
    column_elements: int = 64
    #: Instructions for each byte that a pointwise kernel moves from which on they take about as long as the bytes: only what is on its way while others
    #: are worked on costs nothing then.
    busy: int = 5
    #: Points that a thread of such a kernel does in all, and programs for each multiprocessor that it needs at least.
    repeated: int = 16
    full: int = 16
    #: The part of the cache from which on a table is taken in halves, and the bytes of rows that a program must do then: twice as many programs that do less
    #: take longer to start than their bytes to move.
    large_table: float = 0.3
    halved_bytes: int = 4096
    #: By how much a product's kernel must be faster than the library by the model to be taken without measurement, and the seconds of a call that it must
    #: save (decision 16).
    product_gain: float = 1.4
    product_seconds: float = 50e-6
    #: The same seconds where the kernel also saves storing an operand: a certain gain, as weights of fewer bytes are read where memory decides how long it
    #: takes.
    unstored_seconds: float = 5e-6
    #: And the seconds that it takes to store a product's result and read it again, from which on a product of few terms is computed with what follows it:
    #: 8,192 x 8,192 results of 64 terms with SiLU, bfloat16, 66 us in the place of 117.
    kept_seconds: float = 20e-6
    #: The same seconds from which on any product in a 16-bit type is computed with what follows it where the model says that this takes less time: what is compiled for it has to be
    #: worth that. Never on devices that the model was not fitted to.
    finished_seconds: float = math.inf
    #: Results and multiplications of a product in TF32 from which on turning the smaller of two operands whose terms lie in columns pays. Measured on an H200 (torch 2.11; us of
    #: a @ b of so many rows, columns and terms as they lie, with the copy): 768 x 3,072 of 1,576 terms 70, 59, of 8,192 274, 173; 3,072 x 768 of 8,192 192, 174; 4,096 x 1,024 of 8,192
    #: 262, 231; 4,096 x 4,096 of 4,096 598, 472; 11,008 x 4,096 of 2,048 834, 560; 50,304 x 768 of 4,096 1195, 825. But 1,024 x 1,024 of 4,096 57, 70; 768 x 768 of 8,192 66, 95.
    turned_results: int = 1 << 21
    turned_work: int = 3 << 30
    #: The shapes of attention's kernels.
    attention: AttentionShapes = field(factory=AttentionShapes)
    #: Multiplications of an attention from which on the library's is taken where it has the case. On an H200 cuDNN takes 0.83 to 0.95 of the time of forward and backward of
    #: the templates with heads of 64, 0.75 to 0.77 with heads of 128, at 1.7e10 and more of a causal mask; 1.15 (64) at 8.6e9, 1.3 and 0.99 at 5e8 and 1e9.
    library_attention: float = 1.5e10
    #: The same of attention that is written out, whose templates round scores as the program does: cuDNN takes 0.96 to 1.01 of their time from 2.1e9 to 8.6e9 with heads of 64, 0.69 at 1.7e10
    #: with heads of 128 (forward and backward of a causal mask on an H200).
    library_written_attention: float = 2e9
    #: Kernels that take less are not measured: events tell half a microsecond, which is as much as there is to gain.
    measured_seconds: float = 5e-6
