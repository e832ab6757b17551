import { shellQuote } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import { CONNECT_HELP, DEFAULT_URL } from "../options/connect-options.ts";

/** A beginning of a handle may be this short, so that a mistyped one does not name a process by chance. */
const SHORTEST_BEGINNING = 4;
/** So many are named when a beginning fits several. */
const NAMED_AT_MOST = 5;

export const HANDLE_HELP = `ID is a process's handle as \`procwire ps\` shows it, or a beginning of it that fits no other one (4 letters at least).
`;

/** The end of the help of a command on processes of a server. */
export const PROCESS_HELP = `${CONNECT_HELP}
${HANDLE_HELP}Without --connect: ${DEFAULT_URL}.
`;

/** Finds the process of a handle or of an unambiguous prefix. */
export async function findProcess(
  client: Pick<ExecServerClient, "list">,
  id: string,
): Promise<ResolvedProcess> {
  const processes = (await client.list({ allSessions: true })).filter(hasHandle);
  const exact = processes.find(({ handle }) => handle === id);
  if (exact) return exact;
  if (id.length < SHORTEST_BEGINNING)
    throw new Error(
      `${shellQuote(id)} is too short: give at least ${SHORTEST_BEGINNING} letters of a handle`,
    );
  const [first, ...others] = processes.filter(({ handle }) => handle.startsWith(id));
  if (!first) throw new Error(`unknown handle ${shellQuote(id)}; \`procwire ps --all\` lists them`);
  if (others.length === 0) return first;
  const named = [first, ...others].slice(0, NAMED_AT_MOST).map(({ handle }) => handle);
  throw new Error(
    `${shellQuote(id)} fits ${others.length + 1} processes: ${named.join(", ")}; give more letters`,
  );
}

export type ResolvedProcess = ProcessListing & { handle: string };

function hasHandle(listing: ProcessListing): listing is ResolvedProcess {
  return listing.handle !== undefined;
}
