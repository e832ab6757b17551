/** The program behind `bin/procwire`: runs the command and exits with its code. */
import { main } from "./main.ts";

void main(process.argv.slice(2)).then((code) => {
  process.exitCode = code;
  // Once the event loop is empty: Node would first free the JavaScript heap, which takes longer than the kernel needs.
  process.once("beforeExit", () => process.exit());
});
