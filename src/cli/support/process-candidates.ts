import type { ProcessListing } from "../../exec/exec-process.ts";
import { type ConnectValues, connectTo, requireServerUrl } from "../options/connect-options.ts";
import type { Candidate, CompletedWords } from "./candidates.ts";

/** IDs that a command takes. */
export interface CompletedIds {
  /** Whether exited processes are candidates too. */
  includesExited: boolean;
  /** Whether the command takes several IDs. Default: false. */
  isRepeatable?: boolean | undefined;
}

/**
 * Returns names and handles of the processes of a server. Connects only to servers with a socket: a tab key starts neither
 * ssh nor docker.
 */
export async function processCandidates(
  { values, positionals }: CompletedWords,
  { includesExited, isRepeatable = false }: CompletedIds,
): Promise<Candidate[]> {
  if (positionals.length > 0 && !isRepeatable) return [];
  const connection: ConnectValues = values;
  const url = requireServerUrl(connection.connect);
  if (!/^(?:wss?|unix):/.test(url)) return [];
  await using client = await connectTo(url, { ...connection, session: undefined });
  const listed = await client.list({ allSessions: true });
  const offered = listed.filter(({ running }) => includesExited || running);
  return [...offered.flatMap(nameCandidate), ...offered.flatMap(handleCandidate)].filter(
    ({ word }, at, all) => !positionals.includes(word) && all.findIndex((other) => other.word === word) === at,
  );
}

function nameCandidate({ name, argv }: ProcessListing): Candidate[] {
  return name === undefined ? [] : [{ word: name, description: argv.join(" ") }];
}

function handleCandidate({ handle, name, argv }: ProcessListing): Candidate[] {
  const description = name === undefined ? argv.join(" ") : `${name}: ${argv.join(" ")}`;
  return handle === undefined ? [] : [{ word: handle, description }];
}
