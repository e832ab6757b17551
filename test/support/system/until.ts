import assert from "node:assert/strict";

/** Longer than any wait on a busy machine takes; a wait that reaches it has failed. */
export const WAIT_TIMEOUT_MS = 60_000;

/**
 * The polling loop of the tests: polls until a condition outside this program holds. `orEnd` resolves when the
 * condition can no longer become true; the wait then fails at once.
 */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  orEnd?: Promise<unknown>,
): Promise<void> {
  const deadline = performance.now() + WAIT_TIMEOUT_MS;
  let ended = false;
  const end = () => {
    ended = true;
  };
  void orEnd?.then(end, end);
  while (!(await condition())) {
    if (ended && !(await condition())) assert.fail(`it ended before ${what}`);
    if (performance.now() > deadline) assert.fail(`waited ${WAIT_TIMEOUT_MS} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
