"""A Numba pipeline for functions that are only called from other compiled functions.

Numba optimises every function together with its callees and translates it to machine code with two wrappers for calls
from Python and C. All of that is repeated in each caller, so a function at depth five of the calls is optimised five
times. Functions compiled here are only lowered to LLVM code: the kernel that calls them, directly or not, is optimised
and translated once, with everything inlined. The loop of MP-NUCB then compiles in 34 s instead of 85 s of CPU time, and
runs as fast.

The compiled functions have no environment, so they cannot print or raise exceptions with values computed at run time.
Users' functions are therefore compiled by Numba's own pipeline, only without the wrappers.

This module uses private interfaces of Numba (the methods of `InnerLibrary`), checked by
tests/test_private_interfaces.py.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import IRLegalization


class NoEnvironments:
    """The code generator that `InnerLibrary` shows: there is no machine code whose environment could be set."""

    def set_env(self, name: str, environment: Any) -> None:
        pass


class InnerLibrary(JITCodeLibrary):
    """LLVM code of one function and its callees, to be linked into the library of a caller."""

    @property
    def codegen(self) -> NoEnvironments:
        return NoEnvironments()

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, which means that there is no machine code."""
        self._ensure_finalized()
        return 0


@register_pass(mutates_CFG=False, analysis_only=True)
class UseInnerLibrary(LoweringPass):
    """Provide the library into which the following pass lowers the function."""

    _name = "idleband_inner_library"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class InnerCompiler(CompilerBase):
    """Numba's default pipeline with `InnerLibrary`."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(UseInnerLibrary, IRLegalization)
        passes.finalize()
        return [passes]
