import assert from "node:assert/strict";

/** Room for a busy machine; a wait that takes this long has failed. */
export const PATIENCE_MS = 30_000;

/**
 * The polling loop of the tests: polls until a condition outside this program holds. `orEnd` resolves when the
 * condition can no longer become true; the wait then fails at once.
 */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  orEnd?: Promise<unknown>,
): Promise<void> {
  const deadline = Date.now() + PATIENCE_MS;
  let ended = false;
  void orEnd?.then(() => {
    ended = true;
  });
  while (!(await condition())) {
    if (ended && !(await condition())) assert.fail(`it ended before ${what}`);
    if (Date.now() > deadline) assert.fail(`waited ${PATIENCE_MS} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
