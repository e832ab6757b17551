import { exitImmediately } from "../../native/exit-now.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { onSignals } from "../terminal/raw-terminal.ts";
import { forceExit } from "./forced-exit.ts";

/** Thrown when SIGINT or SIGTERM ends the command. */
export class InterruptedError extends Error {
  override readonly name = "InterruptedError";
  readonly signal: "SIGINT" | "SIGTERM";

  constructor(signal: "SIGINT" | "SIGTERM") {
    super(`interrupted by ${signal}`);
    this.signal = signal;
  }
}

/** Calls `run` with an abort signal. The first SIGINT or SIGTERM aborts it, the second one exits immediately. */
export async function runInterruptible(run: (signal: AbortSignal) => Promise<number>): Promise<number> {
  const controller = new AbortController();
  const stopSignals = onSignals(["SIGINT", "SIGTERM"], (signal) => {
    if (controller.signal.aborted) exitImmediately(signal === "SIGINT" ? 130 : 143);
    controller.abort(new InterruptedError(signal));
  });
  // A closed stdout must not end a job: output is dropped.
  standardStream(1);
  standardStream(2);
  try {
    return forceExit(await run(controller.signal));
  } catch (error) {
    if (!(error instanceof InterruptedError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return forceExit(error.signal === "SIGINT" ? 130 : 143);
  } finally {
    stopSignals();
  }
}
