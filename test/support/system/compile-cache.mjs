/**
 * Preloaded into every test process: caches compiled modules on disk, so that most of a test file's start is saved. The
 * environment variable `NODE_COMPILE_CACHE` would also reach the servers under test.
 */
import { enableCompileCache } from "node:module";
import { join } from "node:path";

enableCompileCache(join(import.meta.dirname, "../../../node_modules/.cache/procwire-tests"));
