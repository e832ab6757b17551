import { exitNow } from "../../native/exit-now.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { leave } from "../leave.ts";

/** The user, or a supervisor, wants this program to end. */
export class Interruption extends Error {
  override readonly name = "Interruption";
  readonly signal: "SIGINT" | "SIGTERM";

  constructor(signal: "SIGINT" | "SIGTERM") {
    super(`interrupted by ${signal}`);
    this.signal = signal;
  }
}

/**
 * Runs a command's work with an end that can be asked for: the first SIGINT or SIGTERM aborts the signal it is given, the
 * second ends the program at once.
 */
export async function runToExit(run: (signal: AbortSignal) => Promise<number>): Promise<number> {
  const controller = new AbortController();
  const onSignal = (signal: NodeJS.Signals) => {
    if (signal !== "SIGINT" && signal !== "SIGTERM") return;
    if (controller.signal.aborted) exitNow(signal === "SIGINT" ? 130 : 143);
    controller.abort(new Interruption(signal));
  };
  // A reader that goes away is no reason to lose a job: what cannot be told is not told.
  standardStream(1);
  standardStream(2);
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  try {
    return leave(await run(controller.signal));
  } catch (error) {
    if (!(error instanceof Interruption)) throw error;
    process.stderr.write(`${error.message}\n`);
    return leave(error.signal === "SIGINT" ? 130 : 143);
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  }
}
