import { errorMessage } from "../../base/error-message.ts";
import {
  type CredentialDefinition,
  parseCredential,
  requireUniqueNames,
} from "../../protocol/network/credential-definition.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import { UsageError } from "../command.ts";

/** The credentials of sandboxed commands. */
export interface ChosenCredentials {
  /** Names that a start sends to its host. */
  names: readonly string[];
  /** Definitions for this host; empty if a server runs the commands. */
  definitions: readonly CredentialDefinition[];
}

const FLAG = "--credential";
const FORM = "NAME=DOMAIN:HEADER:SOURCE";

/** Parses definitions of `--credential`. Rejects duplicate names. */
export function parseCredentialFlags(texts: readonly string[]): CredentialDefinition[] {
  try {
    const definitions = texts.map(parseCredential);
    requireUniqueNames(definitions);
    return definitions;
  } catch (error) {
    throw new UsageError(`${FLAG} ${errorMessage(error)}`);
  }
}

/**
 * Returns the credentials of `--credential` and of the rules file. Only the host of the commands defines credentials, because
 * it reads the secrets: with a server, a client names them.
 */
export function credentialsFromFlags(
  values: readonly string[] | undefined,
  policy: ApprovalPolicy | undefined,
  { isLocal }: { isLocal: boolean },
): ChosenCredentials {
  const given = values ?? [];
  const fromRules = policy?.credentials ?? [];
  if (isLocal) {
    const definitions = [...parseCredentialFlags(given), ...fromRules];
    try {
      requireUniqueNames(definitions);
    } catch (error) {
      throw new UsageError(`${FLAG} and [[credential]] of --rules: ${errorMessage(error)}`);
    }
    return { names: definitions.map(({ name }) => name), definitions };
  }
  if (fromRules.length > 0)
    throw new UsageError(
      `[[credential]] of --rules conflicts with --connect: the server reads the secrets; start it with ${FLAG} ${FORM}`,
    );
  const definition = given.find((text) => text.includes("="));
  if (definition !== undefined)
    throw new UsageError(
      `${FLAG} \`${definition}\` conflicts with --connect: the server reads the secrets; start it with this option and give ${FLAG} NAME here`,
    );
  return { names: given, definitions: [] };
}
