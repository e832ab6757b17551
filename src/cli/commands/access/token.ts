import { readFileSync, realpathSync } from "node:fs";
import { userInfo } from "node:os";
import { FlagError } from "../../../base/flag-error.ts";
import { omitUndefined } from "../../../base/omit-undefined.ts";
import { randomUuid } from "../../../base/random-uuid.ts";
import { printableJson } from "../../../base/text/printable-text.ts";
import { appendRevokedToken } from "../../../server/auth/revoked-tokens.ts";
import { parseScope, SCOPE_CLAIM, SCOPE_GROUPS } from "../../../server/auth/token-scope.ts";
import { type Command, defineCommand, defineSubcommands, singleArgument, UsageError } from "../../command.ts";
import type { HelpPage } from "../../help/help-page.ts";
import { parseDuration } from "../../options/parse-duration.ts";
import { defineServerCommand, openClient } from "../../server-command.ts";

const HELP: HelpPage = {
  usage: ["SUBCOMMAND [OPTIONS] [ARGUMENTS]"],
  details: `Signed tokens (JWT, HS256) of a server with \`--ws-auth signed-bearer-token\`. Each subject is a principal.`,
  options: {},
  examples: [
    ["procwire token create --secret-file secret --subject ci --expires 8h", "for one day's builds"],
    ["procwire token inspect --secret-file secret < token", "verify and print a token"],
    ["procwire token revoke 3f0c9a52-…", "end the access of a token"],
  ],
};

const CREATE_HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Prints a token that is signed with the shared secret of a server. The server ends all connections of the token when it
    expires, after the tolerated clock skew.`,
  options: {
    Token: [
      ["--secret-file PATH", "file of `serve --ws-shared-secret-file`"],
      ["--subject NAME", "principal of the token: jwt:NAME"],
      ["--expires TIME", "validity: 90s, 15m, 8h, 30d (default: 1h)"],
      ["--issuer NAME", "issuer, as `serve --ws-issuer` requires it"],
      ["--audience NAME", "audience, as `serve --ws-audience` requires it"],
    ],
    Scope: [
      ["--scope NAME", "grant a group of methods, or one method; repeatable (default: everything)"],
      ["--root DIR", "allow files and working directories only below DIR; repeatable, requires --scope"],
      ["--sandbox MODE", "required sandbox of processes: read-only, workspace-write, or either with +network"],
      ["--limit-processes N", "maximum processes and threads per process tree"],
      ["--limit-memory-bytes BYTES", "maximum memory per process tree"],
      ["--limit-wall-time SECONDS", "maximum run time per process"],
      ["--limit-output-bytes BYTES", "maximum output per process"],
    ],
  },
  notes: `Scopes: ${SCOPE_GROUPS.join(", ")}. docs/security.md lists the methods of each. --root with the scope process requires
    --sandbox, because a process could leave the directories.`,
  examples: [
    ["procwire token create --secret-file secret --subject ci --expires 8h", "print a token"],
    ["procwire token create --secret-file secret --scope attach:viewer", "only watch processes"],
    [
      "procwire token create --secret-file secret --scope process \\\n--root /srv/app --sandbox workspace-write",
      "for an agent in one directory",
    ],
  ],
};

const INSPECT_HELP: HelpPage = {
  usage: ["[OPTIONS] [TOKEN]"],
  details:
    "Prints header and claims of a token as JSON, and whether it has expired. Reads the token from stdin without TOKEN.",
  options: { Verification: [["--secret-file PATH", "also verify the signature with this secret"]] },
  examples: [
    ["procwire token inspect < token", "print a token"],
    ["procwire token inspect --secret-file secret < token", "also verify it"],
    ["procwire token inspect --secret-file secret eyJhbGci…", "a token as argument"],
  ],
  exitCodes: "0; 1 if the token is malformed or its signature is invalid",
};

const REVOKE_HELP: HelpPage = {
  usage: ["[OPTIONS] TOKEN-ID"],
  details: `Revokes the token with this id (claim \`jti\`), and ends its connections, console sessions and share links at once. The
    server stores the id across restarts. An operator can revoke every token, other principals only their own.`,
  options: {
    "Without a server": [
      ["--revoked-tokens-file PATH", "append the id to this file; servers that use the file read it within 2 seconds"],
    ],
  },
  examples: [
    ["procwire token revoke 3f0c9a52-…", "one of the tokens of this principal"],
    ["procwire token revoke --token-file operator 3f0c9a52-…", "as operator"],
    ["procwire token revoke --revoked-tokens-file secret.revoked 3f0c…", "without a server"],
  ],
};

const DEFAULT_EXPIRY = "1h";

const create: Command = defineCommand("token create", CREATE_HELP, {
  takesArguments: false,
  options: {
    "secret-file": { type: "string" },
    subject: { type: "string" },
    expires: { type: "string" },
    issuer: { type: "string" },
    audience: { type: "string" },
    scope: { type: "string", multiple: true },
    root: { type: "string", multiple: true },
    sandbox: { type: "string" },
    "limit-processes": { type: "string" },
    "limit-memory-bytes": { type: "string" },
    "limit-wall-time": { type: "string" },
    "limit-output-bytes": { type: "string" },
  },

  async run(values) {
    const { "secret-file": secretFile, subject, expires, issuer, audience } = values;
    if (secretFile === undefined) throw new UsageError("give --secret-file PATH");
    const limit = (name: keyof typeof values, factor = 1) => {
      const text = values[name];
      return text === undefined ? undefined : Number(text) * factor;
    };
    const claim = scopeClaim({
      scope: values.scope,
      roots: values.root?.map((path) => realpathSync(path)),
      sandbox: values.sandbox,
      limits: {
        processes: limit("limit-processes"),
        memoryBytes: limit("limit-memory-bytes"),
        wallTimeMs: limit("limit-wall-time", 1000),
        outputBytes: limit("limit-output-bytes"),
      },
    });
    const ttlMs = parseDuration("expires", expires ?? DEFAULT_EXPIRY);
    const { SignJWT } = await import("jose");
    const now = Math.floor(Date.now() / 1000);
    const token = new SignJWT(claim === null ? {} : { [SCOPE_CLAIM]: claim })
      .setProtectedHeader({ alg: "HS256", typ: "JWT" })
      .setJti(randomUuid())
      .setIssuedAt(now)
      .setExpirationTime(now + Math.ceil(ttlMs / 1000));
    if (subject !== undefined) token.setSubject(subject);
    if (issuer !== undefined) token.setIssuer(issuer);
    if (audience !== undefined) token.setAudience(audience);
    process.stdout.write(`${await token.sign(readSecretFile(secretFile))}\n`);
    return 0;
  },
});

/** Decodes a token. The error does not contain the argument, because it may be another secret. */
function decode<T>(token: string, parse: (token: string) => T): T {
  try {
    return parse(token);
  } catch (error) {
    throw new Error("TOKEN is not a signed token; copy the output of `procwire token create`", { cause: error });
  }
}

const inspect: Command = defineCommand("token inspect", INSPECT_HELP, {
  options: { "secret-file": { type: "string" } },

  async run({ "secret-file": secretFile }, positionals) {
    const token = (positionals.length > 0 ? singleArgument(positionals, "TOKEN") : readFileSync(0, "utf8")).trim();
    const { compactVerify, decodeJwt, decodeProtectedHeader } = await import("jose");
    const { header, claims } = decode(token, (text) => ({
      header: decodeProtectedHeader(text),
      claims: decodeJwt(text),
    }));
    if (secretFile !== undefined) await compactVerify(token, readSecretFile(secretFile), { algorithms: ["HS256"] });
    const isExpired = typeof claims.exp === "number" && claims.exp * 1000 <= Date.now();
    const signature = secretFile === undefined ? "not verified" : "valid";
    process.stdout.write(`${printableJson({ header, claims, signature, expired: isExpired })}\n`);
    return 0;
  },
});

const revoke: Command = defineServerCommand("token revoke", REVOKE_HELP, {
  options: { "revoked-tokens-file": { type: "string" } },

  async run(values, positionals) {
    const tokenId = singleArgument(positionals, "TOKEN-ID");
    const path = values["revoked-tokens-file"];
    if (path !== undefined) {
      appendRevokedToken(path, { tokenId, by: `user:${userInfo().username}`, nowMs: Date.now() });
      return 0;
    }
    await using client = await openClient(values);
    const { ended } = await client.call("token/revoke", { tokenId });
    process.stdout.write(`revoked ${tokenId}; ${ended} connections, console sessions and share links ended\n`);
    return 0;
  },
});

interface ScopeFlags {
  scope: string[] | undefined;
  roots: string[] | undefined;
  sandbox: string | undefined;
  limits: Record<string, number | undefined>;
}

/** Returns the claim with the scope, or null for a token that grants everything. */
function scopeClaim({ scope, limits, ...rest }: ScopeFlags): object | null {
  const set = Object.entries(limits).filter(([, value]) => value !== undefined);
  if (scope === undefined) {
    if (rest.roots || rest.sandbox !== undefined || set.length > 0)
      throw new UsageError("--root, --sandbox and --limit-* require --scope");
    return null;
  }
  const claim = omitUndefined({ scope, ...rest, limits: set.length > 0 ? Object.fromEntries(set) : undefined });
  const parsed = parseScope(claim);
  if (typeof parsed === "string") throw new UsageError(`the scope ${parsed}`);
  return claim;
}

/** Reads a secret as the server does: without trailing white space. */
function readSecretFile(path: string): Buffer {
  try {
    return Buffer.from(readFileSync(path, "latin1").replace(/[\t-\r ]+$/, ""), "latin1");
  } catch (error) {
    throw new FlagError("--secret-file", path, error);
  }
}

export const command: Command = defineSubcommands("token", HELP, { create, inspect, revoke });
