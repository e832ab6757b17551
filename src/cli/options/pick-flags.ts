import type { OptionTable } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { SERVER_OPTIONS } from "./connect-options.ts";

/**
 * Returns the options of the table that a help page lists, and the connection options if the page refers to them. The result
 * has the type of the whole table: a value of an option that the page does not list is always absent.
 */
export function pickFlags<const O extends OptionTable>(options: O, { options: groups, connection }: HelpPage): O {
  const listed = new Set(listedFlags(groups));
  if (connection) for (const name of Object.keys(SERVER_OPTIONS)) listed.add(name);
  return Object.fromEntries(Object.entries(options).filter(([name]) => listed.has(name))) as O;
}

/** Returns the long names of all options that the groups list. */
export function listedFlags(groups: HelpPage["options"]): string[] {
  const terms = Object.values(groups).flatMap((rows) => rows.map(([term]) => term));
  return terms.flatMap((term) => term.match(/(?<=(?:^|[ ,])--)[a-z][a-z0-9-]*/g) ?? []);
}
