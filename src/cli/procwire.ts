/** The program behind `bin/procwire`: runs the command and exits with its code. */
import { main } from "./main.ts";

process.exitCode = await main(process.argv.slice(2));
