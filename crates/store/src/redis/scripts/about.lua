-- What every call of a known store begins with. ARGV[1] is the incarnation that the client knows.
--
-- KEYS: 1 about, 2 records, 3 keys, 4 parts, 5 gone, 6 log, 7 calls; redis.rs says what they are.
local time = redis.call('TIME')
local wall = time[1] * 1000000 + time[2]
local about = redis.call('HMGET', KEYS[1], 'incarnation', 'wall', 'ahead', 'number', 'version', 'since')
if about[1] ~= ARGV[1] then
    return redis.error_reply('FORGOT the server was restarted, replaced or emptied')
end
local last_wall = tonumber(about[2])
local ahead = tonumber(about[3])
-- While the server's clock is behind an earlier reading, the store's clock stands still, until the next commit.
local moment = math.max(wall, last_wall) + ahead
local number = math.max(tonumber(about[4]), moment)

-- tostring() would round.
local function text(whole)
    return string.format('%.0f', whole)
end

-- Calls a command with a list of any length: unpack() has a limit.
local function call_with(command, key, list)
    local results = {}
    for first = 1, #list, 1000 do
        local some = redis.call(command, key, unpack(list, first, math.min(first + 999, #list)))
        if type(some) == 'table' then
            for place = 1, #some do
                results[#results + 1] = some[place]
            end
        end
    end
    return results
end

-- The versions of parts. A part without a record has the version of the last part with the same hash that lost its last record.
local function versions_of(parts)
    local versions = call_with('HMGET', KEYS[4], parts)
    for place = 1, #parts do
        if not versions[place] then
            versions[place] = redis.call('HGET', KEYS[5], string.sub(redis.sha1hex(parts[place]), 1, 3)) or '0'
        end
    end
    return versions
end
