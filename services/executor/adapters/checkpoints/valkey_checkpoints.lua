-- Stores one micro checkpoint. All checkpoints of a job are one hash, so that they expire together.
-- KEYS: the hash of the job; the jobs of the tenant by expiry; the bytes of each job of the tenant, and their sum under "".
-- ARGV: attempt, number, parent, description, content, seconds to keep, bytes of the tenant at most, invocation id
local attempt, number, parent = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local keep, most, job = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local now = tonumber(redis.call('TIME')[1])

if tonumber(redis.call('HGET', KEYS[1], 'attempt') or '0') > attempt then
  return 'not_held'
end
if parent ~= '0' and redis.call('HEXISTS', KEYS[1], 'content:' .. parent) == 0 then
  return 'no_parent'
end

local function forget(id)
  local bytes = tonumber(redis.call('HGET', KEYS[3], id) or '0')
  redis.call('HDEL', KEYS[3], id)
  redis.call('HINCRBY', KEYS[3], '', -bytes)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1000)) do
  forget(id)
  redis.call('ZREM', KEYS[2], id)
end
if tonumber(redis.call('HGET', KEYS[3], '') or '0') + #ARGV[5] > most then
  return 'full'
end

-- A full one begins a chain. The chain before it is kept, older ones are not needed any more.
if parent == '0' then
  local last = tonumber(redis.call('HGET', KEYS[1], 'full') or '0')
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local old = tonumber(string.match(field, ':(%d+)$'))
    if old and old < last then
      redis.call('HDEL', KEYS[1], field)
    end
  end
  redis.call('HSET', KEYS[1], 'full', number)
end
redis.call('HSET', KEYS[1], 'attempt', attempt, 'about:' .. number, ARGV[4], 'content:' .. number, ARGV[5])
redis.call('EXPIRE', KEYS[1], keep)

local bytes = 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 8) == 'content:' then
    bytes = bytes + redis.call('HSTRLEN', KEYS[1], field)
  end
end
forget(job)
redis.call('HSET', KEYS[3], job, bytes)
redis.call('HINCRBY', KEYS[3], '', bytes)
redis.call('ZADD', KEYS[2], now + keep, job)
redis.call('EXPIRE', KEYS[2], keep)
redis.call('EXPIRE', KEYS[3], keep)
return 'stored'
