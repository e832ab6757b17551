/** Runs `src/cli/procwire.ts` with the compile cache of the tests: a start takes less than half of the CPU time. */
import "../system/compile-cache.mjs";

// A static import would be compiled before the cache is enabled.
void import("../../../src/cli/procwire.ts");
