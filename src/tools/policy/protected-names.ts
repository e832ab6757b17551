export { START_UP_NAMES } from "../../sandbox/protected-user-paths.ts";

/**
 * Names inside each writable root that stay read-only, missing ones too. Programs outside of the sandbox run or trust them:
 * the hooks and settings of `.git`, the instructions for agents in `.codex` and `.agents`, the jobs in `.procwire`.
 */
export const PROTECTED_NAMES: readonly string[] = [".git", ".codex", ".agents", ".procwire"];
