-- Decides about the calls of one circuit for all executors: the decisions of `domain/resilience/circuit.py`.
--
-- KEYS   1: the circuit, a JSON document; 2: exists while the service limits the rate of the caller's party; 3: the
--        circuits of the namespace, by the time of their last write; 4: the last changes of the circuit, a JSON list.
-- ARGV   1: admit, report or half_open; 2: now in milliseconds, empty for the server's own clock; 3..9: failures, failure rate,
--        slow rate, window (ms), open time (ms), successes, most canaries; 10: generation; 11: outcome; 12: the name.
--        half_open has no configuration of a tool: the open time is the one that the circuit was opened with.
--
-- Returns `admitted|generation|wait (ms)|state before|state after|limited`, one text, because a client reads each part of a list
-- by itself. The states are empty where nothing changed.

local SLICES, CANARY_SHARE, HALF_OPEN_WAIT = 10, 10, 1000
local REMEMBERED, CHANGES = 7 * 86400000, 10

local verb, now = ARGV[1], tonumber(ARGV[2])
local failures, failure_rate, slow_rate = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local window, open_time = tonumber(ARGV[6]), tonumber(ARGV[7])
local successes, max_canaries = tonumber(ARGV[8]), tonumber(ARGV[9])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local stored = redis.call('GET', KEYS[1])
local c = stored and cjson.decode(stored) or {state = 'closed', generation = 0}
local before, after = '', ''

local function save()
  local keep = math.ceil(window + 10 * open_time + 60000)
  redis.call('SET', KEYS[1], cjson.encode(c), 'PX', string.format('%.0f', keep))
  redis.call('ZADD', KEYS[3], string.format('%.0f', now), ARGV[12])
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - REMEMBERED))
  redis.call('PEXPIRE', KEYS[3], REMEMBERED)
end

local function remember_change()
  local remembered = redis.call('GET', KEYS[4])
  local changes = remembered and cjson.decode(remembered) or {}
  table.insert(changes, 1, {now, before, after})
  while #changes > CHANGES do table.remove(changes) end
  redis.call('SET', KEYS[4], cjson.encode(changes), 'PX', REMEMBERED)
end

local function enter(state)
  before, after = c.state, state
  c = {state = state, generation = c.generation + 1, since = now, arrivals = 0, passed = 0, under_way = 0, succeeded = 0}
  if state == 'open' then c.until_time = now + open_time end
  remember_change()
end

local function answer(admitted, wait, limited)
  return string.format('%d|%.0f|%.0f|%s|%s|%d', admitted, c.generation, wait, before, after, limited or 0)
end

local function admit()
  local limited = redis.call('PTTL', KEYS[2])
  if limited > 0 then return answer(0, limited, 1) end
  if c.state == 'open' then
    if now < c.since + open_time then return answer(0, c.since + open_time - now) end
    enter('half_open')
  end
  if c.state == 'closed' then return answer(1, 0) end
  c.arrivals = c.arrivals + 1
  local idle = not c.last_pass or now - c.last_pass >= open_time
  if idle then c.under_way = 0 end
  if c.under_way >= max_canaries or not (idle or c.passed < math.floor(c.arrivals / CANARY_SHARE)) then
    save()
    return answer(0, HALF_OPEN_WAIT)
  end
  c.passed, c.under_way, c.last_pass = c.passed + 1, c.under_way + 1, now
  save()
  return answer(1, 0)
end

-- Slices are a list of {number, calls, failed, slow}.
local function count(outcome)
  local current = math.floor(now / (window / SLICES))
  local kept, total = {}, {0, 0, 0}
  local mine
  for _, slice in ipairs(c.slices or {}) do
    if slice[1] > current - SLICES then
      kept[#kept + 1] = slice
      if slice[1] == current then mine = slice end
    end
  end
  if not mine then
    mine = {current, 0, 0, 0}
    kept[#kept + 1] = mine
  end
  mine[2] = mine[2] + 1
  if outcome == 'failure' then mine[3] = mine[3] + 1 end
  if outcome == 'slow' then mine[4] = mine[4] + 1 end
  for _, slice in ipairs(kept) do
    for column = 1, 3 do total[column] = total[column] + slice[column + 1] end
  end
  c.slices, c.window = kept, window
  local calls, failed, slow = total[1], total[2], total[3]
  if (failed >= failures and failed >= failure_rate * calls) or (slow >= failures and slow >= slow_rate * calls) then
    enter('open')
  end
end

local function report()
  local generation, outcome = tonumber(ARGV[10]), ARGV[11]
  if generation ~= c.generation then return answer(1, 0) end
  if c.state == 'closed' then
    if outcome == 'none' then return answer(1, 0) end
    count(outcome)
  elseif c.state == 'half_open' then
    c.under_way = math.max(c.under_way - 1, 0)
    if outcome == 'failure' or outcome == 'slow' then
      enter('open')
    else
      if outcome == 'success' then c.succeeded = c.succeeded + 1 end
      if c.succeeded >= successes then enter('closed') end
    end
  end
  save()
  return answer(1, 0)
end

local function half_open()
  if c.state ~= 'open' then return answer(0, 0) end
  open_time = c.until_time - c.since
  enter('half_open')
  save()
  return answer(0, 0)
end

if verb == 'half_open' then return half_open() end
if verb == 'admit' then return admit() end
return report()
