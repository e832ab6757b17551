import type { Kind } from "./text-block.ts";

interface RuleScope {
  id: string;
  /** Replacements, as shown to the author. */
  advice: string;
  /** Kinds of prose that the rule applies to. Default: all. */
  kinds?: readonly Kind[];
  /** Files that the rule applies to. Default: all. */
  paths?: RegExp;
  /** True if headings may use the phrase. */
  allowsHeadings?: boolean;
}

/** Bans a phrase. Text that an exception overlaps is allowed. */
export interface PhraseRule extends RuleScope {
  pattern: RegExp;
  except?: RegExp;
}

export interface SentenceRule extends RuleScope {
  maxSentenceWords: number;
}

/** Limits the width of the lines of a comment. */
export interface WidthRule extends RuleScope {
  maxColumns: number;
}

export type Rule = PhraseRule | SentenceRule | WidthRule;

const anyOf = (...words: string[]) => `(?:${words.flatMap((list) => list.split(" ")).join("|")})`;
const anyPhrase = (...phrases: string[]) => `(?:${phrases.join("|")})`;
const phrase = (source: string) => new RegExp(source, "gi");

const BE = "(?:is|are|was|were|be|been)";

const RIDDLE_OPENINGS = anyPhrase(
  "what|who|whom|whose|which|whoever|whatever",
  "those (?:that|who|which|whose|of)",
  "the ones?",
  "ones? (?:that|which|who|whose)",
  "nobody|somebody|everybody",
  "of (?:what|one|those|which|a|the)",
  "where (?:nobody|nothing|there)",
  String.raw`the same(?: ${anyOf("for with as by but in without also where when from on of")}\b|[,;.:])`,
);

const VERBS_AFTER_WHAT = anyOf(
  "is was are were has had have comes? came cannot can could may might must does did lies lay stands stood",
  "goes went remains belongs needs outlives survives already else no nobody somebody one each",
);

const NOUNS_AFTER_IS_NO = anyOf(
  "longer more less matter need such way point reason room other limit default guarantee one different better",
  "worse earlier later larger smaller two single",
);

/** Words that cannot be the noun in the pattern of `per`: a number, a noun, "a", a unit. */
const NOT_COUNTED = anyOf(
  "of for to at in on by as is was from with into like than that and or per through within after before about",
  "over under be but if when while keeps? has have had gets? makes? starts? ends? runs? reads? writes? sends?",
  "takes? needs? uses? left beside behind inside each such half just quite what may can",
);

const UNITS_AFTER_A = anyOf(
  "line row byte character process connection message file key path event frame principal request stream job",
  "call kind command method statement host piece part field folder directory record page turn server session",
  "client channel package platform question answer token user program",
);

/** Order matters: text that two rules match counts for the first one. */
export const RULES: readonly Rule[] = [
  {
    id: "indefinite-subject",
    advice: "name the subject: the client, the caller, the process, the user, another process",
    pattern: /\b(?:whoever|whomever|whosoever|whom|somebody|nobody|everybody|anybody)\b(?:'s)?/gi,
  },
  {
    id: "tell",
    advice: "notify, report, emit, log, return or send, with subject and object",
    pattern: /\b(?:tell|tells|told|telling|retold|untold)\b/gi,
    except:
      /\btell(?:s|ing)?\b(?: [^\s.;:]+){0,6} (?:apart|from)\b|\btold (?:apart|from)\b|\b(?:can|cannot|can't|could|hard to|way to|able to) tell\b/gi,
  },
  {
    id: "wall",
    advice: "sandbox, sandboxed, inside the sandbox",
    pattern: /\b(?:walls?|walled|unwalled)\b(?![- ]?(?:time|clock))/gi,
  },
  {
    id: "door",
    advice: "listener, HTTP gateway, authentication; accept or admit a connection",
    pattern:
      /\b(?:doors?|knocks?|shown out|gatekeeper|(?:let|lets|letting|gets?|got) in(?! (?:a|the|an|its|touch)\b)|comes? in by|came in by)\b/gi,
  },
  {
    id: "figures",
    advice: "metrics, measurements or numbers",
    pattern: /\bfigures\b/gi,
  },
  {
    id: "keeper",
    advice: "supervisor; a persistent process survives a server restart",
    pattern:
      /\b(?:keepers?|unkept|kept (?:process|processes|program|programs|child|children|one|ones)|lifetime kept)\b/gi,
  },
  {
    id: "far",
    advice: "remote",
    pattern: /\bfar (?:hosts?|end|side|machines?|servers?|away)\b/gi,
  },
  {
    id: "of-its-own",
    advice: "separate, dedicated, its own X, one X per Y",
    pattern: /\bof (?:its|their|his|her|one's|our|my|your) own\b/gi,
  },
  {
    id: "by-itself",
    advice: "automatically, on its own, individually, without X",
    pattern: /\bby (?:itself|themselves|himself|oneself)\b/gi,
  },
  {
    id: "under-way",
    advice: "in progress, in flight, running, pending",
    pattern: /\bunder ?way\b/gi,
  },
  {
    id: "go-on",
    advice: "continue, keep running, resume",
    pattern: /\b(?:go|goes|went|gone|going) on\b(?! (?:the|a|an|this|that|its) )/gi,
  },
  {
    id: "so-many",
    advice: "give the number, the limit or its name: N bytes, the timeout, this many",
    pattern:
      /\b(?:for|after|by|every|within|up to|at most|of|than|with) so (?:long|many|much|few|often)\b|\bso (?:many|much) (?:bytes|rows|lines|seconds|milliseconds|times|characters|tokens|of (?:it|them))\b/gi,
  },
  {
    id: "riddle-opening",
    advice: "start with a verb or the noun that is documented",
    pattern: phrase(String.raw`(?<=^\s*)${RIDDLE_OPENINGS}(?![a-z])`),
    kinds: ["comment", "error", "help"],
  },
  {
    id: "free-relative",
    advice: "replace 'what is/was ...' by a noun: the output, the request, the pending calls",
    pattern: phrase(String.raw`\b(?:what|whatever) ${VERBS_AFTER_WHAT}\b`),
    except: /\bno matter what\b/gi,
    allowsHeadings: true,
  },
  {
    id: "one-that",
    advice: "repeat the noun: a client that, the process that",
    pattern:
      /\b(?:ones? (?:that|who|which|whose)|those (?:that|who|which|whose)|all that (?:is|was|are|were|it|they|has|had))\b/gi,
    except: /\b(?:at least|more than|exactly|only) one (?:that|which)\b/gi,
  },
  {
    id: "is-no-noun",
    advice: "is not a X",
    pattern: phrase(String.raw`\b${BE} no (?!${NOUNS_AFTER_IS_NO}\b)[a-z]`),
    except: /\bthere (?:is|are|was|were|has been|have been|may be|can be|must be|will be|would be) no\b/gi,
  },
  {
    id: "passive-preposition",
    advice: "active voice with a subject: the server waits for X, the client requested X",
    pattern:
      /\b(?:is|are|was|were|be|been|being|never|not) (?:waited|asked|looked|cared|spoken|heard|talked|thought|begun|done) (?:for|at|of|about|after|with|by)\b/gi,
  },
  {
    id: "is-asked",
    advice: "request, call, query, prompt: who sends what to whom",
    pattern: /\b(?:is|are|was|were|be|been|being) asked\b(?! (?:for|of|about|by|with|at|after))/gi,
  },
  {
    id: "conditional-where",
    advice: "if, when, or unless",
    pattern:
      /\bwhere (?:there (?:is|are|was|were)|it (?:cannot|can|is not|was not|does not|has no)|nobody|nothing|none|somebody)\b/gi,
  },
  {
    id: "as-it-came",
    advice: "unchanged, verbatim, in arrival order",
    pattern: /\bas (?:it|they) (?:came|come|comes|stands?|stood|goes|went)\b|\bin the order (?:it|they) came\b/gi,
  },
  {
    id: "has-it",
    advice: "name the verb: stores, defines, contains, owns",
    pattern:
      /\bas (?:\S+ ){1,4}(?:has|have|had) (?:it|them)\b|\b(?:still|already|no longer|that) (?:has|have|had) (?:it|them)\b/gi,
  },
  {
    id: "thing",
    advice: "name it: request, process, file, resource, step",
    pattern: /\bthings?\b/gi,
    except: /\b(?:the )?same thing\b|\bthe (?:first|last) thing\b/gi,
  },
  {
    id: "person",
    advice: "user, operator, caller or viewer; 'for people' is 'human-readable'",
    pattern: /\b(?:persons?|people)\b/gi,
  },
  {
    id: "folder",
    advice: "directory",
    pattern: /\bfolders?\b/gi,
  },
  {
    id: "per",
    advice: "per: one character per byte, one file per command",
    pattern: phrase(
      String.raw`\b(?:one|two|three|\d[\d,]*)(?: [a-z-]+)? (?!${NOT_COUNTED}\b)[a-z-]+ an? ${UNITS_AFTER_A}\b`,
    ),
  },
  {
    id: "beside",
    advice: "next to (place), in addition to, besides, alongside",
    pattern: /\bbeside\b/gi,
  },
  {
    id: "anew",
    advice: "again",
    pattern: /\banew\b/gi,
  },
  {
    id: "knows-no",
    advice: "does not depend on, does not import, has no access to",
    pattern: /\b(?:know|knows|knew|knowing) (?:no|nothing|neither|none)\b/gi,
  },
  {
    id: "hear-of",
    advice: "is notified of, receives, observes",
    pattern: /\b(?:hear|hears|heard|learn|learns|learned) of\b/gi,
  },
  {
    id: "says-so",
    advice: "reports X, logs X, returns X",
    pattern: /\b(?:say|says|said|saying) so\b/gi,
  },
  {
    id: "news",
    advice: "updates, events, changes, new output",
    pattern: /\bnews\b/gi,
  },
  {
    id: "look-noun",
    advice: "poll, check, read, scan, inspect",
    pattern:
      /\b(?:two|a|one|each|every|first|last|next|another|further) looks?\b(?! (?:like|as|up|for|at))|\b(?:looks|looked) (?:again|anew)\b/gi,
  },
  {
    id: "give-way",
    advice: "is evicted, yields; release, free, return",
    pattern: /\b(?:give|gives|given|giving|gave) (?:way|back)\b|\b(?:give|gives|gave|given) (?:it|them) back\b/gi,
  },
  {
    id: "let-go",
    advice: "release, drop, stop tracking",
    pattern:
      /\b(?:let|lets|letting) go\b|\bholds? (?:it|them|the process|the server|a process|its output|output) back\b|\bheld back\b/gi,
  },
  {
    id: "stands",
    advice: "is, appears, contains, precedes",
    pattern: /\b(?:stands|stood)\b(?! for\b)/gi,
  },
  {
    id: "straight",
    advice: "direct, directly",
    pattern: /\bstraight (?:ways?|from|into|to|lanes?|input|one)\b/gi,
  },
  {
    id: "whose-it-is",
    advice: "the owner of X, X's principal",
    pattern: /\bwhose (?:it|they|he|she|that|this|these) (?:is|are|was|were)\b/gi,
  },
  {
    id: "mend",
    advice: "fix, repair, restore",
    pattern: /\b(?:mend|mends|mended|bury|buries|buried|crowd|crowds|strangers?|dresses|dressed|rooms)\b/gi,
  },
  {
    id: "rid-had",
    advice: "exists, is available; dispose of, remove",
    pattern: /\b(?:can|could|may|to) be had\b|\b(?:is|are|be) rid of\b|\bgoes? by\b|\bwent by\b|\bcomes? and goes?\b/gi,
  },
  {
    id: "answer",
    advice: "response (RPC, HTTP), reply (terminal query), result (function); a model or a user gives an answer",
    pattern: /\b(?:answer|answers|answered|answering|unanswered)\b/gi,
    paths: /^(?:src\/(?:server|client|connection|protocol|forward|files|http|native|local|exec)|native)\//,
  },
  {
    id: "long-sentence",
    advice: "split it: one fact per sentence, a list for alternatives",
    maxSentenceWords: 35,
    kinds: ["doc"],
  },
  {
    id: "wide-comment",
    advice: "wrap the comment",
    maxColumns: 140,
    kinds: ["comment"],
  },
];
